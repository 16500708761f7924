// printf on the device: each line is printed by the host as well, under another name.
#include "check.hpp"

constexpr int groups = 5, threads = 192;

/// Both sides print this for item i of GPU `gpu`. Some lines need several packets, and some lanes are off.
#define PRINT_ITEM(who, gpu, i, text)                                                                                 \
  do {                                                                                                                \
    printf("%s %d.%d: %d %i %5d|%-5d|%+d %05d\n", who, gpu, i, i, -i, i, i, i, i);                                    \
    if (i % 3 == 0)                                                                                                   \
      printf("%s %d.%d: %hhd %hd %ld %lld %zu\n", who, gpu, i, static_cast<signed char>(-i), static_cast<short>(-i),  \
             -1L - i, 1ll << 40 | i, sizeof(int));                                                                    \
    if (i % 5 == 1)                                                                                                   \
      printf("%s %d.%d: %u %x %#X %o %llx\n", who, gpu, i, 4294967295u - i, 4294967295u - i, i, i, ~0ull - i);        \
    if (i % 7 == 2)                                                                                                   \
      printf("%s %d.%d: %f %8.3f %.2e %g %a %%\n", who, gpu, i, i * 0.5, i / 3.0, i * 1e10, 1.0 / (i + 1), i * 0.25); \
    if (i % 2)                                                                                                        \
      printf("%s %d.%d: %c %s|%10s|%-10.3s|%*d|%.*f\n", who, gpu, i, 'a' + i % 26, text, text + 2, text, 6, i, 2,     \
             i * 1.25);                                                                                               \
    else printf("%s %d.%d\n", who, gpu, i);                                                                           \
  } while (0)

constexpr char const* long_text =
    "a text that is longer than the seven words of a packet, so that it takes two of them or more";

__global__ void print_items(int gpu, char const* text) {
  int const i = blockIdx.x * blockDim.x + threadIdx.x;
  PRINT_ITEM("device", gpu, i, text);
}
__global__ void print_formats(char const* format) {
  printf(format, 1, 2.5);
  printf("device of no arguments\n");
}
__global__ void print_much(int times) {
  for (int i = 0; i < times; ++i) printf("device of a record that fills the buffer, %d %d\n", i, i);
}

int main(int argc, char**) {
  if (argc > 1) {  // more than a buffer holds
    print_much<<<1, 64>>>(4000);
    HIP(hipDeviceSynchronize());
    return 0;
  }
  for (int gpu = 0; gpu < 2; ++gpu) {
    char* text;
    HIP(hipSetDevice(gpu));
    HIP(hipMalloc(&text, 256));
    HIP(hipMemcpy(text, long_text, std::strlen(long_text) + 1, hipMemcpyHostToDevice));
    print_items<<<groups, threads>>>(gpu, text);
  }
  char* format;
  HIP(hipMalloc(&format, 64));
  HIP(hipMemcpy(format, "device of a format in memory %d %g\n", 36, hipMemcpyHostToDevice));
  print_formats<<<1, 1>>>(format);
  for (int gpu = 0; gpu < 2; ++gpu) {
    HIP(hipSetDevice(gpu));
    HIP(hipDeviceSynchronize());
    for (int i = 0; i < groups * threads; ++i) PRINT_ITEM("host", gpu, i, long_text);
  }
  std::printf("host of a format in memory %d %g\nhost of no arguments\n", 1, 2.5);
}
