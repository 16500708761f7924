// expect: no matching function|no instance of
#include <fusewire/launch/launch.hpp>
using namespace fusewire;
int function(int x) { return x; }
void host(world& w) { launch(w, w.stream(), {}, function, 1); }
