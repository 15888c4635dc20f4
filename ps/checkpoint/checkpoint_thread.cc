#include "ps/checkpoint/checkpoint_thread.h"

#include <exception>
#include <utility>

#include "common/trace/trace.h"

namespace muster {
namespace {

std::string Write(const CheckpointToWrite& what, const TensorImage& image) {
  try {
    const trace::Span span("checkpoint", {}, {.step = what.name.step});
    WriteCheckpoint(what, image);
    return "";
  } catch (const std::exception& error) {  // also no memory
    return error.what();
  }
}

}  // namespace

CheckpointThread::CheckpointThread(Post post, Done done)
    : post_(std::move(post)), done_(std::move(done)), thread_([this](const std::stop_token& stop) {
        trace::NameThread("checkpoints");
        Work(stop);
      }) {}

CheckpointThread::~CheckpointThread() = default;

void CheckpointThread::Start(CheckpointToWrite what, std::shared_ptr<const TensorImage> image) {
  {
    const std::lock_guard lock(mutex_);
    job_ = {std::move(what), std::move(image)};
  }
  wake_.notify_one();
}

void CheckpointThread::Work(const std::stop_token& stop) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!wake_.wait(lock, stop, [this] { return job_.has_value(); })) return;
    const Job job = *std::exchange(job_, std::nullopt);
    lock.unlock();
    const std::string trouble = Write(job.what, *job.image);
    post_([this, trouble] { done_(trouble); });
  }
}

}  // namespace muster
