// Package build makes images of Dockerfiles. Nothing of a build runs on the host.
//
// BuildKit's frontend turns a Dockerfile into a graph of operations: sources, commands and work on files. It does so in a
// process of its own, with limits. Two ideas make the rest small.
//
// Files are data. The result of an operation is a [tree]: an index of paths, and one file with all contents. The
// context that a client sends is a tree, and so is what a command wrote, the content of a URL, and every layer of an
// image that a COPY adds. A [view] shows trees over each other, and over the EROFS file of an image. COPY, ADD, WORKDIR
// and heredocs read from a view and write to a tree; links are followed in the view. No path of a Dockerfile, of a
// context or of an archive is ever given to the host's kernel.
//
// A step is an image. Each operation adds one layer to the image of the operation before, and the store of images keeps
// it under a key: the digest of the operation and of the keys of its inputs. A command runs in a sandbox of that image,
// which has the owner, the limits and the network of the caller, and what was written in it becomes the next layer. Work
// on files is done each time, as that is quick, unless all inputs are the same; its key is the content that it gave. So
// a file of the context whose time alone has changed, or a stage that was built again and is the same, changes no key.
//
// What is bounded: the bytes and the entries of each tree, the Dockerfile and what its variables expand to, the number
// of operations, the time of the build, and the bytes of output. A build that ends for any reason destroys its sandbox;
// after a server was killed, the next one does that. Steps that are done stay, and the next build goes on from them.
package build
