// Writes weights to files of the run directory, in a thread of its own.
//
// Owner: the model saver. Everything is called in the loop's thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/arena.h"
#include "common/graph/graph.h"
#include "common/model/model_metadata.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"

namespace muster {

class ModelWriter {
 public:
  // With an empty run.dir nothing is ever written. Both outlive this.
  ModelWriter(const config::Config& config, const Graph& graph);

  bool writes() const { return !config_.run().dir().empty(); }

  // Copies these weights, to write them to best.safetensors, and returns. While one copy is being
  // written another can wait; a newer one takes its place.
  void WriteBest(std::span<const float> weights, const ModelInfo& info);
  // Weights that stay as they are until Await says that all is done, to this file. Also tries once
  // more what could not be written before.
  void WriteLast(const std::string& file, std::span<const float> weights, const ModelInfo& info);

  // A run that goes on: of which step the file of the best weights is; nothing if there is none.
  std::optional<int64_t> StepOfBest() const;
  // They are the best so far, and stay.
  void KeepBest(const ModelInfo& info);

  // Waits a little; true when nothing is left to be written.
  bool Await(std::chrono::milliseconds at_most);
  // What could not be written since the last time, a line each.
  std::vector<std::string> TakeFailures();
  // What is there, in the order of their names in model_saver.h.
  std::vector<events::Summary::Model> saved() const;

 private:
  struct Job {
    std::string name;
    std::span<const float> weights;
    ModelInfo info;
    Arena copy;  // that `weights` are in, of a best one
  };

  void Add(Job job);
  void Fail(const std::string& what);
  void Work(std::stop_token stop);
  // Why it could not be written, or "".
  std::string Write(Job& job) const;
  void Note(const Job& job, const std::string& trouble);
  Arena TakeArena();

  const config::Config& config_;
  const Graph& graph_;

  mutable std::mutex mutex_;
  std::condition_variable_any wake_, idle_;
  std::deque<Job> jobs_;
  bool busy_ = false;
  std::optional<Job> unsaved_;  // the best weights, if they could not be written
  std::vector<Arena> free_;
  std::vector<std::string> failures_;
  std::vector<events::Summary::Model> saved_;
  std::jthread thread_;  // begins with the first job; last: joined first
};

}  // namespace muster
