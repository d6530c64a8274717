package filehash

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"sort"
)

// The persisted form, little-endian, read in one piece and decoded on demand:
//
//	magic | uint32 count | count x uint32 offset, in the order of the keys | records
//	record: uint32 key length | uint32 value length | key | value | checksum
//
// The checksum is the first 16 bytes of the SHA-256 of the rest of its record: a damaged record counts as missing.
// Damage to the offsets makes records unreachable and has no other effect.
const (
	magic      = "aiter-filehash 1\n"
	recordHead = 8
	sumSize    = 16
	maxFile    = 256 << 20
)

// table is a read-only memo in its form on disk. The zero value is empty.
type table struct {
	data  []byte
	count int
}

// readTable reads the table at path. An unreadable file is an empty table.
func readTable(path string) *table {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return &table{}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return &table{}
	}
	return newTable(data)
}

func newTable(data []byte) *table {
	if len(data) < len(magic)+4 || string(data[:len(magic)]) != magic {
		return &table{}
	}
	count := int64(binary.LittleEndian.Uint32(data[len(magic):]))
	if int64(len(data)) < int64(len(magic))+4+4*count {
		return &table{}
	}
	return &table{data: data, count: int(count)}
}

// get returns the value stored under key.
func (t *table) get(key string) ([]byte, bool) {
	want := []byte(key)
	i := sort.Search(t.count, func(i int) bool {
		k, _, _ := t.record(i)
		return bytes.Compare(k, want) >= 0
	})
	if i >= t.count {
		return nil, false
	}
	k, value, whole := t.record(i)
	if !bytes.Equal(k, want) || !intact(whole) {
		return nil, false
	}
	return value, true
}

// each calls yield for every intact record, in key order.
func (t *table) each(yield func(key string, value []byte)) {
	for i := range t.count {
		if key, value, whole := t.record(i); intact(whole) {
			yield(string(key), value)
		}
	}
}

// record returns the i-th record without checking its checksum; all nil if its lengths do not fit the data.
func (t *table) record(i int) (key, value, whole []byte) {
	offset := int64(binary.LittleEndian.Uint32(t.data[len(magic)+4+4*i:]))
	if offset+recordHead > int64(len(t.data)) {
		return nil, nil, nil
	}
	rest := t.data[offset:]
	keyLen, valueLen := int64(binary.LittleEndian.Uint32(rest)), int64(binary.LittleEndian.Uint32(rest[4:]))
	end := recordHead + keyLen + valueLen + sumSize
	if end > int64(len(rest)) {
		return nil, nil, nil
	}
	return rest[recordHead : recordHead+keyLen], rest[recordHead+keyLen : end-sumSize], rest[:end]
}

func intact(whole []byte) bool {
	if len(whole) < recordHead+sumSize {
		return false
	}
	body, sum := whole[:len(whole)-sumSize], whole[len(whole)-sumSize:]
	want := sha256.Sum256(body)
	return bytes.Equal(want[:sumSize], sum)
}

// encodeTable is the inverse of newTable.
func encodeTable(entries map[string][]byte) []byte {
	keys := make([]string, 0, len(entries))
	for key := range entries {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	head := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(keys)))
	start := len(head) + 4*len(keys)
	var body []byte
	for _, key := range keys {
		head = binary.LittleEndian.AppendUint32(head, uint32(start+len(body)))
		body = appendRecord(body, key, entries[key])
	}
	return append(head, body...)
}

func appendRecord(b []byte, key string, value []byte) []byte {
	start := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	b = append(append(b, key...), value...)
	sum := sha256.Sum256(b[start:])
	return append(b, sum[:sumSize]...)
}
