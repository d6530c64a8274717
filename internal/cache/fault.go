package cache

import (
	"encoding/json"
	"time"
)

// ServerFault is the last fault of a server, which the processes that use the cache share.
type ServerFault struct {
	Time  time.Time `json:"time"`
	Cause string    `json:"cause"`
	Text  string    `json:"text"`
}

// PutServerFault stores the fault of a server under a key. It fails with [*AccessError].
func (d *Dir) PutServerFault(key Key, f ServerFault) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return d.Put(Failure, key, data)
}

// RecentServerFault returns the fault under a key, false if there is none within the given time. A time in the future comes from a wrong
// clock.
func (d *Dir) RecentServerFault(key Key, within time.Duration) (ServerFault, bool) {
	var f ServerFault
	data, err := d.Get(Failure, key)
	if err != nil || json.Unmarshal(data, &f) != nil {
		return ServerFault{}, false
	}
	age := time.Since(f.Time)
	return f, age >= 0 && age < within
}
