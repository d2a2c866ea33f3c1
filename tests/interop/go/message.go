package main

import (
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// message is what the tests ask to send. Bodies travel as Base64, which is how encoding/json writes bytes.
type message struct {
	Body       []byte            `json:"body"`
	Tag        string            `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Flag       int32             `json:"flag"`
}

func (m message) outgoing(topic string) *primitive.Message {
	outgoing := primitive.NewMessage(topic, m.Body)
	outgoing.Flag = m.Flag
	outgoing.WithTag(m.Tag)
	if len(m.Keys) > 0 {
		outgoing.WithKeys(m.Keys)
	}
	for name, value := range m.Properties {
		outgoing.WithProperty(name, value)
	}
	return outgoing
}

type received struct {
	Topic       string            `json:"topic"`
	Body        []byte            `json:"body"`
	Tag         string            `json:"tag"`
	Keys        string            `json:"keys"`
	Properties  map[string]string `json:"properties"`
	Flag        int32             `json:"flag"`
	ID          string            `json:"id"`
	OffsetID    string            `json:"offset_id"`
	QueueID     int               `json:"queue_id"`
	QueueOffset int64             `json:"queue_offset"`
	Reconsumed  int32             `json:"reconsume_times"`
	StoredMs    int64             `json:"stored_ms"`
}

func describe(consumed []*primitive.MessageExt) []received {
	messages := make([]received, 0, len(consumed))
	for _, m := range consumed {
		messages = append(messages, received{
			Topic: m.Topic, Body: m.Body, Tag: m.GetTags(), Keys: m.GetKeys(), Properties: m.GetProperties(),
			Flag: m.Flag, ID: m.MsgId, OffsetID: m.OffsetMsgId,
			QueueID: m.Queue.QueueId, QueueOffset: m.QueueOffset,
			Reconsumed: m.ReconsumeTimes, StoredMs: m.StoreTimestamp,
		})
	}
	return messages
}

type sent struct {
	Status      string `json:"status"`
	ID          string `json:"id"`
	OffsetID    string `json:"offset_id"`
	QueueID     int    `json:"queue_id"`
	QueueOffset int64  `json:"queue_offset"`
}

func describeSent(result *primitive.SendResult) sent {
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = "NOT_OK"
	}
	return sent{
		Status: status, ID: result.MsgID, OffsetID: result.OffsetMsgID,
		QueueID: result.MessageQueue.QueueId, QueueOffset: result.QueueOffset,
	}
}
