#pragma once
#include "machine/scheduler.hpp"

namespace fusewire::sim {

/// Prints the report to standard error and ends the process with exit_code_of_a_report.
[[noreturn]] void report_fault(resident_group const&, wave&);
[[noreturn]] void report_broken_barrier(resident_group const&);
[[noreturn]] void report_deadlock(node&, scheduler&);

}  // namespace fusewire::sim
