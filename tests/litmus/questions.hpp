// The experiments behind the table of main.cpp.
#pragma once
#include "litmus.hpp"

namespace litmus {

outcome kernel_end_reaches_peers(context&);
outcome kernel_end_pushes_to_peers(context&);
outcome shared_lines(context&);
outcome uncached_through_ipc(context&);
outcome counted_stores(context&);
outcome writeback_delay(context&);
outcome late_atomics(context&);
outcome late_loads(context&);
outcome first_xcd(context&);
outcome dispatch_order(context&);
outcome clocks(context&);
outcome scalar_cache(context&);
outcome flag_round_trip(context&);

}  // namespace litmus
