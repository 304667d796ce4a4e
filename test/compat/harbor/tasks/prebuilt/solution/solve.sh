#!/bin/bash
cat note.txt >/copy
