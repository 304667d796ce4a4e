#!/bin/bash
echo $(($(cat /app/a) + 1)) >/app/b
