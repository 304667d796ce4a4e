#!/bin/bash
test "$(cat /tmp/name)" = worker && test ! -s /tmp/shadow && test "$(id -un)" = root && test -s /etc/shadow
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
