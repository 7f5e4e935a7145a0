// Saves steps 1 and 2 into the folder given and keeps the last: run under strace by the test.
#include "saver.h"

int main(int, char** arguments) {
  dtrain::CheckpointWriter writer(arguments[1],
                                  {.keep_last = 1, .keep_best = 0, .run_id = "traced"});
  for (const std::int64_t step : {1, 2}) {
    dtrain::CheckpointSnapshot snapshot = writer.take_snapshot();
    dtrain::fill_snapshot(snapshot, step);
    writer.save(std::move(snapshot));
  }
  writer.wait();
}
