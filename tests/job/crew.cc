#include "tests/job/crew.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <utility>

#include "common/base/error.h"

namespace muster::testing {

config::Config CrewConfig(const std::string& settings, uint32_t workers, uint32_t slices) {
  config::Config config = SmallConfig(workers, slices);
  config::Config more;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(settings, &more)) << settings;
  config.MergeFrom(more);
  config.mutable_run()->set_steps(kCrewSteps);
  config.mutable_evaluation()->set_every_steps(2);
  config.mutable_evaluation()->set_batch(4);
  config.mutable_evaluation()->clear_skip_final();
  if (config.cluster().on_lost_worker() == config::Cluster::ABORT)
    config.mutable_cluster()->set_on_lost_worker(config::Cluster::CONTINUE);
  return config;
}

Crew::~Crew() {
  for (std::thread& thread : threads_) thread.join();
}

void Crew::Add(std::optional<uint32_t> rank, HardyWorker::At at) {
  const std::lock_guard lock(mutex_);
  threads_.emplace_back([this, rank, at = std::move(at)] {
    try {
      if (HardyWorker(job_, rank, at).Run()) ++completed_;
    } catch (const Error& error) {
      const std::lock_guard errors(mutex_);
      errors_ += std::string(error.what()) + "\n";
    }
  });
}

void Milestone::Await() {
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(30), [&] { return left_ <= 0; }));
}

HardyWorker::At DiesAt(Point point, int64_t step) {
  return [=](Point now, int64_t now_step, Client& client) {
    if (now != point || (now_step != step && point != Point::kJoined)) return;
    // Its pushes are used, because those of the others have arrived or will arrive.
    if (point == Point::kHalfPushed) {
      client.AwaitChunk(step + 1, client.chunks().size() - 1);
    }
    throw Dies();
  };
}

uint64_t Undisturbed(const config::Config& config) {
  static std::mutex mutex;
  static std::map<std::string, uint64_t> known;
  config::Config plain = config;
  plain.clear_cluster();
  plain.mutable_cluster()->set_wire_dtype(config.cluster().wire_dtype());
  plain.mutable_cluster()->set_chunk_bytes(config.cluster().chunk_bytes());
  const std::lock_guard lock(mutex);
  uint64_t& hash = known[plain.SerializeAsString()];
  if (hash == 0) {
    config::Config two = config;
    two.mutable_cluster()->set_workers(2);
    TestJob job(two);
    job.test_samples = kCrewTestSamples;
    {
      Crew crew(job);
      for (const uint32_t rank : {0u, 1u}) crew.Add(rank);
    }
    hash = job.Finish().weights_hash;
  }
  return hash;
}

}  // namespace muster::testing
