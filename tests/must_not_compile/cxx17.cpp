// expect: fusewire needs C\+\+20: link with fusewire::fusewire
// with: -std=c++17
#include <fusewire/fusewire.hpp>
