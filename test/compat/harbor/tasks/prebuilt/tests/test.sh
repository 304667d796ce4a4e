#!/bin/bash
test "$(cat /copy)" = 'The image is ready: this file is copied into the sandbox.' && test "$(id -u)" = 0
echo $((1 - ($? != 0))) >/logs/verifier/reward.txt
