package main

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

const messageNotFound = 40401

// described returns the message of an argument.
func described(text string) *rmq.Message {
	fields, err := url.ParseQuery(text)
	must(err)
	made := message(" ")
	for name, values := range fields {
		switch name {
		case "body":
			made.Body = []byte(values[0])
		case "size":
			made.Body = bytes.Repeat([]byte("x"), number(values[0]))
		case "key":
			made.SetKeys(values...)
		case "tag":
			made.SetTag(values[0])
		case "group":
			made.SetMessageGroup(values[0])
		case "in":
			made.SetDelayTimestamp(time.Now().Add(time.Duration(number(values[0])) * time.Second))
		default:
			made.AddProperty(strings.TrimPrefix(name, "property."), values[0])
		}
	}
	return made
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

// wanted is the filter of the arguments.
func wanted() *rmq.FilterExpression {
	kind := rmq.TAG
	if os.Args[5] == "SQL" {
		kind = rmq.SQL92
	}
	return rmq.NewFilterExpressionWithType(os.Args[6], kind)
}

func exchange() object {
	producer := producer()
	count := number(os.Args[7])
	var member rmq.SimpleConsumer
	if count > 0 {
		member = consumer(wanted())
	}
	refused := []any{}
	for _, text := range os.Args[8:] {
		if _, err := producer.Send(background, described(text)); err != nil {
			refused = append(refused, err.Error())
		} else {
			refused = append(refused, nil)
		}
	}
	found := []object{}
	if member != nil {
		for _, one := range received(member, count, true) {
			found = append(found, object{
				"body": string(one.GetBody()), "tag": one.GetTag(), "keys": one.GetKeys(),
				"properties": one.GetProperties(),
			})
		}
	}
	return object{"refused": refused, "found": found}
}

func batches() object {
	producer, consumer := producer(), consumer(rmq.SUB_ALL)
	count := number(os.Args[5])
	var sending sync.WaitGroup
	sending.Add(count)
	for each := range count {
		producer.SendAsync(background, message(strconv.Itoa(each)),
			func(_ context.Context, _ []*rmq.SendReceipt, err error) {
				must(err)
				sending.Done()
			})
	}
	sending.Wait()
	sizes, found := []int{}, [][]any{}
	for end := time.Now().Add(60 * time.Second); len(found) <= count && time.Now().Before(end); {
		views, _ := consumer.Receive(background, 50, hidden)
		for _, one := range views {
			found = append(found, []any{string(one.GetBody()), one.GetDeliveryAttempt()})
			if string(one.GetBody()) == "0" && one.GetDeliveryAttempt() == 1 {
				continue
			}
			must(consumer.Ack(background, one))
		}
		if len(views) > 0 {
			sizes = append(sizes, len(views))
		}
	}
	rest, _ := consumer.Receive(background, 32, hidden)
	return object{"sizes": sizes, "found": found, "rest": len(rest)}
}

func stuck() object {
	producer, consumer := producer(), consumer(rmq.SUB_ALL)
	for each := range 6 {
		sent := message(strconv.Itoa(each))
		sent.SetMessageGroup("order-1")
		send(producer, sent)
	}
	found, acked := [][]string{}, map[string]bool{}
	for end := time.Now().Add(60 * time.Second); len(acked) < 6 && time.Now().Before(end); {
		views, _ := consumer.Receive(background, 3, hidden)
		if len(views) == 0 {
			continue
		}
		found = append(found, bodies(views))
		if len(found) == 1 {
			views = views[1:]
		}
		for _, one := range views {
			must(consumer.Ack(background, one))
			acked[string(one.GetBody())] = true
		}
	}
	return object{"batches": found}
}

func bounds() object {
	consumer := consumer(rmq.SUB_ALL)
	refused := []any{}
	receive := func(most int32, invisible time.Duration) (int, any) {
		views, err := consumer.Receive(background, most, invisible)
		// The client reports that there is no message as an error.
		if status, is := rmq.AsErrRpcStatus(err); is && status.Code == messageNotFound {
			return 0, nil
		}
		if err != nil {
			return 0, err.Error()
		}
		return len(views), nil
	}
	for _, seconds := range []time.Duration{9, 43_201} {
		_, text := receive(1, seconds*time.Second)
		refused = append(refused, text)
	}
	begin := time.Now()
	count, text := receive(100_000, hidden)
	return object{"refused": refused, "count": count, "text": text, "after": time.Since(begin).Seconds()}
}

func late() object {
	producer, consumer := producer(), consumer(rmq.SUB_ALL)
	send(producer, message("late"))
	first := received(consumer, 1, false)[0]
	time.Sleep(hidden + time.Second)
	// The client reports no status of an acknowledgement.
	must(consumer.Ack(background, first))
	second := received(consumer, 1, true)[0]
	return object{"refused": nil, "attempt": second.GetDeliveryAttempt()}
}

func checks() object {
	var mutex sync.Mutex
	asked := []string{}
	producer := producer(rmq.WithTransactionChecker(&rmq.TransactionChecker{
		Check: func(one *rmq.MessageView) rmq.TransactionResolution {
			mutex.Lock()
			defer mutex.Unlock()
			body, isFirst := string(one.GetBody()), true
			for _, other := range asked {
				isFirst = isFirst && other != body
			}
			asked = append(asked, body)
			switch {
			case body == "rollback":
				return rmq.ROLLBACK
			case body == "unknown" && isFirst:
				return rmq.UNKNOWN
			default:
				return rmq.COMMIT
			}
		},
	}))
	consumer := consumer(rmq.SUB_ALL)
	for _, body := range []string{"commit", "rollback", "unknown"} {
		_, err := producer.SendWithTransaction(background, message(body), producer.BeginTransaction())
		must(err)
	}
	found := bodies(received(consumer, 2, true))
	rest, _ := consumer.Receive(background, 32, hidden)
	mutex.Lock()
	defer mutex.Unlock()
	return object{"found": append(found, bodies(rest)...), "asked": append([]string{}, asked...)}
}
