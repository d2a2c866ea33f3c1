//go:build tls

package main

import (
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Options of the client after the last release: it encrypts, checks no certificate and has none of its own.

func encryptedProducer() ([]producer.Option, error) {
	return []producer.Option{producer.WithTls(true)}, nil
}

func encryptedConsumer() ([]consumer.Option, error) {
	return []consumer.Option{consumer.WithTls(true)}, nil
}
