package main

import (
	"context"
	"fmt"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// listeners are push consumers by name. Each consumed batch is written as one event before it may be committed.
type listeners struct {
	out     *lines
	started map[string]rocketmq.PushConsumer
}

type event struct {
	Listener string     `json:"listener"`
	Messages []received `json:"messages"`
}

func newListeners(out *lines) *listeners {
	return &listeners{out: out, started: map[string]rocketmq.PushConsumer{}}
}

func (l *listeners) start(asked *request) error {
	name := asked.Listener
	options, err := consumerOptions(asked)
	if err != nil {
		return err
	}
	options = append(options, consumer.WithConsumerOrder(asked.Ordered))
	if asked.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if asked.Failing {
		options = append(options, consumer.WithMaxReconsumeTimes(asked.Retries))
	}
	if asked.Trace {
		options = append(options, consumer.WithTrace(tracing(asked)))
	}
	listener, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	report := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		l.out.write(event{Listener: name, Messages: describe(messages)})
		if asked.Failing {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := listener.Subscribe(asked.Topic, selector(asked), report); err != nil {
		return err
	}
	if err := listener.Start(); err != nil {
		return err
	}
	l.started[name] = listener
	return nil
}

func (l *listeners) stop(name string) error {
	listener := l.started[name]
	delete(l.started, name)
	return listener.Shutdown()
}

// pull asks for messages with the pull consumer, which balances queues and prefetches like the push consumer.
func pull(asked *request) ([]received, error) {
	options, err := consumerOptions(asked)
	if err != nil {
		return nil, err
	}
	puller, err := rocketmq.NewPullConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err := puller.Subscribe(asked.Topic, selector(asked)); err != nil {
		return nil, err
	}
	if err := puller.Start(); err != nil {
		return nil, err
	}
	defer puller.Shutdown()

	messages := []received{}
	deadline := time.Now().Add(time.Duration(asked.TimeoutMs) * time.Millisecond)
	for len(messages) < asked.Count && time.Now().Before(deadline) {
		polled, err := puller.Poll(context.Background(), 500*time.Millisecond)
		if consumer.IsNoNewMsgError(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		messages = append(messages, describe(polled.GetMsgList())...)
		puller.ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	return messages, nil
}

func consumerOptions(asked *request) ([]consumer.Option, error) {
	options := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{asked.NameServer}),
		consumer.WithGroupName(asked.Group),
		consumer.WithInstance(fmt.Sprintf("%s-%s-%d", asked.Group, asked.Listener, os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	if asked.AccessKey != "" {
		options = append(options, consumer.WithCredentials(credentials(asked)))
	}
	if asked.TLS {
		encrypted, err := encryptedConsumer()
		if err != nil {
			return nil, err
		}
		options = append(options, encrypted...)
	}
	return options, nil
}

func selector(asked *request) consumer.MessageSelector {
	if asked.SQL != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: asked.SQL}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: asked.Filter}
}
