package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// replied is what a requester got.
type replied struct {
	Body       []byte            `json:"body"`
	Properties map[string]string `json:"properties"`
}

// requests sends requests, and keeps repliers by name, which answer with the request in capitals.
type requests struct {
	producers map[string]rocketmq.Producer
	repliers  map[string]rocketmq.PushConsumer
}

func newRequests() *requests {
	return &requests{producers: map[string]rocketmq.Producer{}, repliers: map[string]rocketmq.PushConsumer{}}
}

func (r *requests) request(asked *request) (*replied, error) {
	requester, err := r.producer(asked)
	if err != nil {
		return nil, err
	}
	timeout := time.Duration(asked.TimeoutMs) * time.Millisecond
	reply, err := requester.Request(context.Background(), timeout, asked.Messages[0].outgoing(asked.Topic))
	if err != nil {
		return nil, err
	}
	return &replied{Body: reply.Body, Properties: reply.GetProperties()}, nil
}

func (r *requests) reply(asked *request) error {
	sender, err := r.producer(asked)
	if err != nil {
		return err
	}
	options, err := consumerOptions(asked)
	if err != nil {
		return err
	}
	replier, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	handle := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			reply, err := consumer.CreateReplyMessage(m, nil)
			if err == nil {
				// The body that it is given it takes for properties.
				reply.Body = bytes.ToUpper(m.Body)
				reply.WithProperty("language", "go")
				_, err = sender.SendSync(ctx, reply)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := replier.Subscribe(asked.Topic, consumer.MessageSelector{}, handle); err != nil {
		return err
	}
	if err := replier.Start(); err != nil {
		return err
	}
	r.repliers[asked.Listener] = replier
	return nil
}

func (r *requests) stop(name string) error {
	replier := r.repliers[name]
	delete(r.repliers, name)
	return replier.Shutdown()
}

func (r *requests) producer(asked *request) (rocketmq.Producer, error) {
	name := asked.NameServer + "/" + asked.Verb
	if started, ok := r.producers[name]; ok {
		return started, nil
	}
	created, err := rocketmq.NewProducer(
		producer.WithNameServer(primitive.NamesrvAddr{asked.NameServer}),
		producer.WithGroupName(fmt.Sprintf("interop-go-%s-%d", asked.Verb, len(r.producers))),
		producer.WithInstanceName(fmt.Sprintf("requests-%d-%d", len(r.producers), os.Getpid())),
	)
	if err != nil {
		return nil, err
	}
	if err := created.Start(); err != nil {
		return nil, err
	}
	// The client tells brokers of itself half a minute after its start, and before a request to a topic that does not
	// exist. Until then no broker could send it a reply. Nobody answers this one.
	unknown := fmt.Sprintf("unknown-%d-%d", len(r.producers), os.Getpid())
	created.Request(context.Background(), time.Second, primitive.NewMessage(unknown, []byte("hello")))
	r.producers[name] = created
	return created, nil
}
