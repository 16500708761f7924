// How the benchmarks measure; measure.hpp has the protocol.
#pragma once
#include "command_line.hpp"
#include "device_side.hpp"
#include "measure.hpp"
#include "ranks.hpp"
#include "report.hpp"
