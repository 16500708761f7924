// Where the bodies of host functions are compiled: in every program that includes the headers, or once.
//
//   as it is                          with each source, inline:       x.hpp includes x.ipp
//   FUSEWIRE_HOST_LIBRARY defined     in one source of the program:   #include <fusewire/host.ipp>
//
// CMake's fusewire_host_library() does the second; docs/building.md says what it saves.
#pragma once

/// Before the definition of a host function that is no template.
#ifdef FUSEWIRE_HOST_LIBRARY
#define FUSEWIRE_HOST
#else
#define FUSEWIRE_HOST inline
#endif
