package jupyter

import "encoding/binary"

// BinaryProtocol is the name of the second protocol.
const BinaryProtocol = binaryProtocol

// Frame is a message in the second protocol.
func Frame(channel string, parts ...[]byte) []byte {
	return (&answer{channel: channel, parts: [4][]byte(parts)}).frame()
}

// Parts returns the channel and the parts of a message in the second protocol.
func Parts(b []byte) (list [][]byte) {
	at := func(i uint64) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	for i := range at(0) - 1 {
		list = append(list, b[at(i+1):at(i+2)])
	}
	return list
}
