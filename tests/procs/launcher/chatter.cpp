// A rank that talks a lot, to test that lines of ranks never mix: 1,000 lines of 300 characters
// through a buffer that is flushed where it happens to be full, and one line of 20,000.
#include <cstdio>
#include <cstdlib>
#include <string>

int main() {
  const char* rank = std::getenv("RANK");
  const char letter = static_cast<char>('a' + std::atoi(rank == nullptr ? "0" : rank));
  for (int i = 0; i < 1000; ++i) {
    std::string line = std::to_string(i) + " ";
    line.resize(300, letter);
    std::printf("%s\n", line.c_str());
  }
  std::printf("block %s\n", std::string(20000, letter).c_str());
  return 0;
}
