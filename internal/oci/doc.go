// Package oci keeps container images: it pulls, loads, tags, saves and pushes them, and makes one root file system of
// each, as an EROFS file that any number of sandboxes share.
//
// The package is based on two ideas.
//
// First, content and names are kept apart. The content is blobs, which are kept in the layout of OCI under their
// SHA-256 and are written before the record of the image that needs them. The names are in records. A record is one
// small file for one owner and one image. Only the record decides what exists: [Store] keeps a blob or a root file
// system as long as a record needs it, and removes the rest. A server that is killed at any moment leaves temporary
// files and blobs without a record, never a record without its blobs. [Open] removes the temporary files, and keeps
// received parts of layers, so that the next pull continues.
//
// Second, a root file system is made from the streams of its layers. The subpackage rootfs reads each layer once, in
// order, builds the tree of names in memory, and writes the tree as EROFS. No file is unpacked, so the owners and the
// setuid bits of the image need no privilege on the server, and a hostile path has nothing to escape into. If there is a
// root file system of the first layers, it is copied, and only the layers above it are read.
//
// Owners are strings; the empty one is the server. An image of the server is public. Every owner sees its own images
// and the public ones. A blob that another owner received does not count as received: an owner must get the content
// from a registry that gives it, or a digest alone would open other owners' private layers.
//
// The folder, below the path given to [Open]:
//
//	oci-layout          marks the folder as an OCI layout
//	blobs/sha256/HEX    manifests, configurations and layers, whole and verified
//	partial/            received parts of layers, by owner and digest
//	records/            one JSON file for each owner and image
//	roots/HEX.erofs     root file systems, by the digest of their layers and of the writer's version
//	roots/HEX.erofs.tree the same as a folder, for a runtime that cannot read EROFS; removed with the file
//	tmp/                files that are being written
package oci
