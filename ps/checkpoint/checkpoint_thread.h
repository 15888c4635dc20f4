// Writes checkpoints in a thread of its own, one at a time, so that the server's loop never waits
// for a disk.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "ps/checkpoint/write_checkpoint.h"

namespace muster {

class CheckpointThread {
 public:
  // Why it could not be written; "" if it is on the disk.
  using Done = std::function<void(const std::string& trouble)>;
  // Hands something to the loop's thread for it to do.
  using Post = std::function<void(std::function<void()>)>;

  // `done` is called by the loop's thread.
  CheckpointThread(Post post, Done done);
  // Finishes the one that is being written.
  ~CheckpointThread();
  CheckpointThread(const CheckpointThread&) = delete;

  // `image` must not change until `done` is called, and no other one is started before.
  void Start(CheckpointToWrite what, std::shared_ptr<const TensorImage> image);

 private:
  struct Job {
    CheckpointToWrite what;
    std::shared_ptr<const TensorImage> image;
  };
  void Work(const std::stop_token& stop);

  const Post post_;
  const Done done_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::optional<Job> job_;
  std::jthread thread_;  // last: joined first
};

}  // namespace muster
