// Package build builds images from Dockerfiles. No part of a build runs on the host.
//
// BuildKit's frontend turns a Dockerfile into a graph of operations: sources, commands and file operations. It runs in
// a separate process, with limits. Two ideas keep the rest small.
//
// Files are data. The result of an operation is a [tree]: an index of paths, and one file with all contents. The
// context that a client sends is a tree, and so are the files that a command wrote, the content of a URL, and every
// layer of an image that a COPY adds. A [view] shows trees over each other, and over the EROFS file of an image. COPY,
// ADD, WORKDIR and heredocs read from a view and write to a tree; links are followed in the view. No path of a
// Dockerfile, of a context or of an archive is ever given to the host's kernel.
//
// A step is an image. Each operation adds one layer to the image of the previous operation, and the store of images
// keeps it under a key: the digest of the operation and of the keys of its inputs. A command runs in a sandbox of that
// image, which has the owner, the limits and the network of the caller, and the files that it wrote become the next
// layer. File operations are repeated each time, because they are fast, unless all inputs are the same; their key is
// the resulting content. So no key changes if only the time of a file in the context has changed, or if a stage was
// built again with the same result.
//
// These have limits: the bytes and the entries of each tree, the Dockerfile and the expansion of its variables, the
// number of operations, the time of the build, and the bytes of output. A build that ends for any reason destroys its
// sandbox; after a server was killed, the next one does that. Completed steps are kept, and the next build continues
// after them.
package build
