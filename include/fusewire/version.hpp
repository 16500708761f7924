#pragma once

// major * 10000 + minor * 100 + patch. The build reads it from here.
#define FUSEWIRE_VERSION 200
