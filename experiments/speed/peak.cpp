// Peak of one core: fused multiply-adds in registers, and copies of BYTES of memory. Prints one line of JSON.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

typedef float vector_t __attribute__((vector_size(64)));
constexpr int CHAINS = 16;  // independent, so that the latency of a multiply-add is hidden
constexpr double SECONDS = 0.05;
constexpr int WINDOWS = 6;  // the best counts: others may use the machine

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double multiply_adds_per_second() {
  vector_t sums[CHAINS], x = {}, y = {};
  for (int i = 0; i < 16; ++i) x[i] = 0.999f, y[i] = 0.001f * i;
  for (auto& sum : sums) sum = y;
  const double started = now();
  double spent = 0, done = 0;
  while (spent < SECONDS) {
    for (int n = 0; n < 100000; ++n)
      for (int i = 0; i < CHAINS; ++i) sums[i] = sums[i] * x + y;
    done += 100000.0 * CHAINS * 16;
    spent = now() - started;
  }
  volatile float sink = 0;
  for (auto& sum : sums) sink = sink + sum[0];
  return done / spent;
}

static double copied_bytes_per_second(size_t bytes) {
  char *from = static_cast<char*>(malloc(bytes)), *to = static_cast<char*>(malloc(bytes));
  memset(from, 1, bytes), memset(to, 2, bytes);
  const double started = now();
  double spent = 0, done = 0;
  while (spent < SECONDS) {
    for (size_t moved = 0; moved < 50000000; moved += bytes, done += bytes) {
      memcpy(to, from, bytes);
      asm volatile("" : : "r"(to), "r"(from) : "memory");  // every copy is made
    }
    spent = now() - started;
  }
  free(from), free(to);
  return done / spent;
}

int main(int, char** arguments) {
  const size_t bytes = strtoull(arguments[1], nullptr, 10);
  double operations = 0, copied = 0;
  for (int i = 0; i < WINDOWS; ++i) {
    operations = std::max(operations, 2 * multiply_adds_per_second());
    copied = std::max(copied, 2 * copied_bytes_per_second(bytes / 2));
  }
  printf("{\"operations_per_second\": %g, \"bytes_per_second\": %g}\n", operations, copied);
}
