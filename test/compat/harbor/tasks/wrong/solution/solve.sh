#!/bin/bash
echo 2 >/one
