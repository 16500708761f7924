#pragma once
#include "machine/scheduler.hpp"

namespace fusewire::sim {

/// Prints the report to standard error and ends the process with exit_code_of_a_report.
[[noreturn]] void report_fault(resident_group const&, wave&);
[[noreturn]] void report_launch(kernel_launch const&, std::string const& why);  // that has just ended
[[noreturn]] void report_call(std::string const& why);                          // of the host
[[noreturn]] void report_broken_barrier(resident_group const&);
[[noreturn]] void report_deadlock(node&, scheduler&);

/// Prints where waves stand, and returns.
void report_livelock(node&, scheduler&, u64 instructions);
void report_interrupt(node&, scheduler&);

}  // namespace fusewire::sim
