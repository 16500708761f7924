// All parts of the benchmarks' harness; measure.hpp has the protocol of measuring.
#pragma once
#include "command_line.hpp"
#include "device_side.hpp"
#include "measure.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "shape_figures.hpp"
