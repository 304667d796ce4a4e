# The tests of one shard: sh test.sh SHARD
set -eu
test "$(cat name)" = world
echo "shard $1 passed"
