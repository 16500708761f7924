#pragma once

namespace fusewire::sim {

// SIGINT while a thread runs the machine: prints where the waves stand, and ends the process as SIGINT does.

void watch_interrupt();  // a program that handles SIGINT itself keeps its handler
void machine_runs(bool);
bool interrupted();
void end_by_interrupt();

}  // namespace fusewire::sim
