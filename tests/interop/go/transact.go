package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// transactions keeps one transaction producer per group, from its first transaction until it leaves.
type transactions struct {
	out     *lines
	started map[string]*transactor
	count   int
}

// transactor decides about its own messages as it is told, and reports what it is asked about.
type transactor struct {
	rocketmq.TransactionProducer
	out    *lines
	group  string
	answer primitive.LocalTransactionState

	mutex    sync.Mutex
	decision primitive.LocalTransactionState
}

func newTransactions(out *lines) *transactions {
	return &transactions{out: out, started: map[string]*transactor{}}
}

func (t *transactions) transact(asked *request) ([]sent, error) {
	sender, err := t.transactor(asked)
	if err != nil {
		return nil, err
	}
	decision, err := state(asked.Decision)
	if err != nil {
		return nil, err
	}
	sender.mutex.Lock()
	sender.decision = decision
	sender.mutex.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	results := make([]sent, 0, len(asked.Messages))
	for _, m := range asked.Messages {
		result, err := sender.SendMessageInTransaction(ctx, m.outgoing(asked.Topic))
		if err != nil {
			return nil, err
		}
		results = append(results, describeSent(result.SendResult))
	}
	return results, nil
}

func (t *transactions) leave(group string) error {
	sender := t.started[group]
	delete(t.started, group)
	return sender.Shutdown()
}

func (t *transactions) transactor(asked *request) (*transactor, error) {
	if started, ok := t.started[asked.Group]; ok {
		return started, nil
	}
	answer, err := state(asked.Answer)
	if err != nil {
		return nil, err
	}
	created := &transactor{out: t.out, group: asked.Group, answer: answer}
	t.count++
	sender, err := rocketmq.NewTransactionProducer(
		created,
		producer.WithNameServer(primitive.NamesrvAddr{asked.NameServer}),
		producer.WithGroupName(asked.Group),
		producer.WithInstanceName(fmt.Sprintf("transactions-%d-%d", t.count, os.Getpid())),
	)
	if err != nil {
		return nil, err
	}
	created.TransactionProducer = sender
	// A second after this it tells the brokers it knows by then about its group, and next after half a minute.
	if err := sender.Start(); err != nil {
		return nil, err
	}
	t.started[asked.Group] = created
	return created, nil
}

func (t *transactor) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.decision
}

func (t *transactor) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	if message.Queue == nil {
		message.Queue = &primitive.MessageQueue{}
	}
	t.out.write(event{Listener: t.group, Messages: describe([]*primitive.MessageExt{message})})
	return t.answer
}

// unknownState is called otherwise after the last release; its value, the third, is the same.
const unknownState = primitive.RollbackMessageState + 1

func state(decision string) (primitive.LocalTransactionState, error) {
	switch decision {
	case "commit":
		return primitive.CommitMessageState, nil
	case "rollback":
		return primitive.RollbackMessageState, nil
	case "unknown":
		return unknownState, nil
	}
	return unknownState, fmt.Errorf("unknown decision %s", decision)
}
