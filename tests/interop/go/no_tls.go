//go:build !tls

package main

import (
	"errors"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// The released client has no option for TLS.
var errNoTLS = errors.New("this release of the client has no TLS")

func encryptedProducer() ([]producer.Option, error) {
	return nil, errNoTLS
}

func encryptedConsumer() ([]consumer.Option, error) {
	return nil, errNoTLS
}
