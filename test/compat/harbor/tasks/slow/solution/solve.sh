#!/bin/bash
echo 1 >/one
sleep 600
echo 2 >/one
