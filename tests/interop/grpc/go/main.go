// Command grpc runs one scenario of the Go client of 5.x: SCENARIO ADDRESS TOPIC GROUP [ARGUMENT...].
//
// ../scenarios.md has them all. Release 5.1.3 has no recall. The client writes its log to a file in the home folder.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const hidden = 10 * time.Second

var (
	background = context.Background()
	topic      string
	group      string
	printing   sync.Mutex
)

type object map[string]any

func show(value object) {
	printing.Lock()
	defer printing.Unlock()
	encoded, err := json.Marshal(value)
	must(err)
	fmt.Println(string(encoded))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func config() *rmq.Config {
	return &rmq.Config{
		Endpoint:      os.Args[2],
		ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{
			AccessKey: os.Getenv("GRPC_USER"), AccessSecret: os.Getenv("GRPC_SECRET"),
		},
	}
}

func newProducer(options ...rmq.ProducerOption) (rmq.Producer, error) {
	producer, err := rmq.NewProducer(config(), append(options, rmq.WithTopics(topic))...)
	if err != nil {
		return nil, err
	}
	return producer, producer.Start()
}

func producer(options ...rmq.ProducerOption) rmq.Producer {
	producer, err := newProducer(options...)
	must(err)
	return producer
}

func consumer(filter *rmq.FilterExpression) rmq.SimpleConsumer {
	consumer, err := rmq.NewSimpleConsumer(config(),
		rmq.WithSimpleAwaitDuration(5*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: filter}))
	must(err)
	must(consumer.Start())
	return consumer
}

func message(body string) *rmq.Message {
	return &rmq.Message{Topic: topic, Body: []byte(body)}
}

func send(producer rmq.Producer, message *rmq.Message) *rmq.SendReceipt {
	receipts, err := producer.Send(background, message)
	must(err)
	return receipts[0]
}

func received(consumer rmq.SimpleConsumer, count int, acks bool) []*rmq.MessageView {
	found := []*rmq.MessageView{}
	for end := time.Now().Add(30 * time.Second); len(found) < count && time.Now().Before(end); {
		// The client reports that there is no message as an error.
		messages, _ := consumer.Receive(background, 32, hidden)
		for _, one := range messages {
			found = append(found, one)
			if acks {
				must(consumer.Ack(background, one))
			}
		}
	}
	return found
}

func bodies(views []*rmq.MessageView) []string {
	found := []string{}
	for _, one := range views {
		found = append(found, string(one.GetBody()))
	}
	return found
}

func normal() object {
	producer, consumer := producer(), consumer(rmq.SUB_ALL)
	sent := message("hello")
	sent.SetTag("greeting")
	sent.SetKeys("key-1")
	sent.AddProperty("color", "blue")
	receipt := send(producer, sent)
	found := []object{}
	for _, one := range received(consumer, 1, true) {
		found = append(found, object{
			"id": one.GetMessageId(), "body": string(one.GetBody()), "tag": one.GetTag(), "keys": one.GetKeys(),
			"color": one.GetProperties()["color"], "attempt": one.GetDeliveryAttempt(),
		})
	}
	rest, _ := consumer.Receive(background, 32, hidden)
	must(consumer.GracefulStop())
	must(producer.GracefulStop())
	return object{"sent": receipt.MessageID, "found": found, "rest": len(rest)}
}

func fifo() object {
	producer, consumer := producer(), consumer(rmq.SUB_ALL)
	for number := range 4 {
		sent := message(strconv.Itoa(number))
		sent.SetMessageGroup("order-1")
		send(producer, sent)
	}
	views := received(consumer, 4, true)
	groups := []*string{}
	for _, one := range views {
		groups = append(groups, one.GetMessageGroup())
	}
	return object{"found": bodies(views), "groups": groups}
}

func delay() object {
	producer, consumer := producer(), consumer(rmq.SUB_ALL)
	begin := time.Now()
	sent := message("later")
	sent.SetDelayTimestamp(begin.Add(3 * time.Second))
	send(producer, sent)
	found := bodies(received(consumer, 1, true))
	return object{"found": found, "after": time.Since(begin).Seconds(), "recall": nil}
}

func transactions() object {
	asked := make(chan string, 100)
	producer := producer(rmq.WithTransactionChecker(&rmq.TransactionChecker{
		Check: func(one *rmq.MessageView) rmq.TransactionResolution {
			asked <- string(one.GetBody())
			return rmq.COMMIT
		},
	}))
	consumer := consumer(rmq.SUB_ALL)
	for _, body := range []string{"commit", "rollback", "check"} {
		transaction := producer.BeginTransaction()
		_, err := producer.SendWithTransaction(background, message(body), transaction)
		must(err)
		switch body {
		case "commit":
			must(transaction.Commit())
		case "rollback":
			must(transaction.RollBack())
		}
	}
	found := bodies(received(consumer, 2, true))
	close(asked)
	checks := []string{}
	for body := range asked {
		checks = append(checks, body)
	}
	return object{"found": found, "asked": checks}
}

func again() object {
	producer, consumer := producer(), consumer(rmq.SUB_ALL)
	send(producer, message("once more"))
	first := received(consumer, 1, false)[0]
	must(consumer.ChangeInvisibleDuration(first, time.Second))
	second := received(consumer, 1, false)[0]
	must(consumer.ChangeInvisibleDuration(second, 30*time.Second))
	must(consumer.Ack(background, second))
	return object{"attempts": []int32{first.GetDeliveryAttempt(), second.GetDeliveryAttempt()}}
}

func filter() object {
	producer, consumer := producer(), consumer(wanted())
	for number := range 4 {
		sent := message(strconv.Itoa(number))
		sent.SetTag([]string{"even", "odd"}[number%2])
		sent.AddProperty("number", strconv.Itoa(number))
		send(producer, sent)
	}
	return object{"found": bodies(received(consumer, 2, true))}
}

func sendOnce() object {
	producer, err := newProducer()
	if err != nil {
		return object{"refused": err.Error()}
	}
	receipts, err := producer.Send(background, message("hello"))
	if err != nil {
		return object{"refused": err.Error()}
	}
	return object{"sent": receipts[0].MessageID}
}

func push() object {
	var seen sync.Map
	consumer, err := rmq.NewPushConsumer(config(),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{
			Consume: func(one *rmq.MessageView) rmq.ConsumerResult {
				body := string(one.GetBody())
				show(object{"got": body, "attempt": one.GetDeliveryAttempt()})
				_, isKnown := seen.LoadOrStore(body, true)
				if strings.HasPrefix(body, "bad") || strings.HasPrefix(body, "once") && !isKnown {
					return rmq.FAILURE
				}
				return rmq.SUCCESS
			},
		}))
	must(err)
	must(consumer.Start())
	show(object{"ready": true})
	<-input()
	must(consumer.GracefulStop())
	return object{"ended": group}
}

func steady() object {
	producer := producer()
	over := input()
	for number := 0; ; number++ {
		if _, err := producer.Send(background, message(strconv.Itoa(number))); err != nil {
			show(object{"failed": err.Error()})
		} else {
			show(object{"sent": strconv.Itoa(number)})
		}
		select {
		case <-over:
			return object{"ended": topic}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// input is closed when the test has written anything or closed the input.
func input() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(over)
	}()
	return over
}

func main() {
	rmq.ResetLogger()
	rmq.EnableSsl = os.Getenv("GRPC_TLS") == "1"
	topic, group = os.Args[3], os.Args[4]
	scenarios := map[string]func() object{
		"normal": normal, "fifo": fifo, "delay": delay, "transactions": transactions,
		"again": again, "filter": filter, "send": sendOnce, "push": push, "steady": steady,
		"exchange": exchange, "batches": batches, "stuck": stuck, "bounds": bounds, "late": late, "checks": checks,
	}
	show(scenarios[os.Args[1]]())
}
