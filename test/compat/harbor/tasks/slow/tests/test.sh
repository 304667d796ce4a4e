#!/bin/bash
test "$(cat /one)" = 1
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
