// Writes weights to files of the run directory, in a thread of its own. If the best weights cannot
// be written, it makes another attempt every few seconds, and a last one when the run is over.
//
// Owner: the model saver. Everything is called in the loop's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/memory.h"
#include "common/graph/graph.h"
#include "common/model/model_metadata.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"

namespace muster {

class ModelWriter {
 public:
  // With an empty run.dir nothing is ever written. All outlive this.
  ModelWriter(const config::Config& config, const Graph& graph);

  bool writes() const { return !config_.run().dir().empty(); }

  // Copies these weights, to write them to best.safetensors, and returns. While one copy is being
  // written another can wait; a newer one takes its place.
  void WriteBest(std::span<const float> weights, const ModelInfo& info);
  // The run is over. Weights that stay as they are until Await says that all is done, to this file.
  // Also tries once more what could not be written before.
  void WriteLast(const std::string& file, std::span<const float> weights, const ModelInfo& info);

  // A run that goes on: those in the run directory are the best so far, and stay.
  void KeepBest(const ModelInfo& info);

  // Waits a little; true when nothing is left to be written.
  bool Await(std::chrono::milliseconds at_most);
  // Until the best weights of this step, or of one before it, are written, could not be, or are no
  // longer the best. Those that could not be are tried again first: a disk that has room for a
  // checkpoint, which tells of them, may have room for them. Any thread may wait.
  void AwaitBest(int64_t step);
  // What could not be written since the last time, a line each.
  std::vector<std::string> TakeFailures();
  // The files that were written, in the order of their names in model_saver.h.
  std::vector<events::Summary::Model> saved() const;

 private:
  struct Job {
    std::string name;
    std::span<const float> weights;
    ModelInfo info;
    Arena copy;          // that `weights` are in, of a best one
    bool again = false;  // it has failed before, and that was said
  };

  void Add(Job job);
  void Fail(const std::string& file, const std::string& what);
  void TryUnsavedAgain();
  void Settle(Job job, bool written);
  void Work(std::stop_token stop);
  bool AwaitJob(std::unique_lock<std::mutex>& lock, const std::stop_token& stop);
  // Returns why it failed, or "".
  std::string Write(Job& job) const;
  void Note(const Job& job, const std::string& trouble);
  Arena TakeArena();

  const config::Config& config_;
  const Graph& graph_;

  mutable std::mutex mutex_;
  std::condition_variable_any wake_, idle_;
  std::deque<Job> jobs_;
  const Job* writing_ = nullptr;
  bool over_ = false;           // the run
  std::optional<Job> unsaved_;  // the best weights, if they could not be written
  std::vector<Arena> free_;
  std::map<std::string, std::string> failures_;  // name of a file → why
  std::vector<events::Summary::Model> saved_;
  std::jthread thread_;  // begins with the first job; last: joined first
};

}  // namespace muster
