#include "worker/backend/cuda/tuner.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "common/base/error.h"
#include "worker/backend/cuda/await.h"

namespace muster::cuda {
namespace {

constexpr const char* kByShape = "shape";
constexpr int kMostAlgorithms = 8;  // of cublasLt's guesses
constexpr int kRuns = 3;
constexpr double kPatience = 60;  // seconds, for one run

EventHandle MakeTimer() {
  cudaEvent_t event{};
  Check(cudaEventCreateWithFlags(&event, cudaEventDefault), "make an event");
  return EventHandle(event);
}

constexpr size_t kWords = sizeof(cublasLtMatmulAlgo_t::data) / sizeof(uint64_t);

std::string TextOf(const cublasLtMatmulAlgo_t& algorithm) {
  std::string text = "cublaslt";
  for (const uint64_t word : algorithm.data) text += fmt::format(" {:x}", word);
  return text;
}

std::optional<cublasLtMatmulAlgo_t> ParseAlgorithm(const std::string& text) {
  cublasLtMatmulAlgo_t algorithm{};
  const char* at = text.data() + std::min(text.size(), std::string("cublaslt").size());
  const char* const end = text.data() + text.size();
  for (size_t i = 0; i < kWords; ++i) {
    if (at == end || *at++ != ' ') return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, algorithm.data[i], 16);
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  if (at != end || TextOf(algorithm) != text) return std::nullopt;
  return algorithm;
}

}  // namespace

void Tuner::Measure() {
  table_ = {.on = card_.Arithmetic(), .chosen = {}};
  products_.clear();
  timed_ = skipped_ = 0;
  measures_ = true;
}

TuningResult Tuner::Result() {
  measures_ = false;
  return {.choice = muster::TextOf(table_),
          .summary = fmt::format("{} algorithms of {} products and convolutions{}", timed_,
                                 table_.chosen.size(),
                                 skipped_ == 0 ? ""
                                               : fmt::format("; {} layers go by shape, since the "
                                                             "card has no memory to time them in",
                                                             skipped_))};
}

void Tuner::Use(const std::string& choice) {
  AlgorithmTable table = ParseAlgorithmTable(choice);
  if (const std::string here = card_.Arithmetic(); table.on != here) {
    throw Error(ExitCode::kData,
                "the choice of algorithms (worker.autotune) was made on \"{}\", and this worker "
                "computes with \"{}\": use the same cards and libraries, or worker.autotune=false",
                table.on, here);
  }
  std::map<ProductKind, std::unique_ptr<TunedProduct>> products;
  for (const auto& [key, value] : table.chosen) {
    const std::optional<ProductKind> kind = ParseProductKind(key);
    if (kind) products[*kind] = MakeProduct(key, *kind, value);
  }
  measures_ = false;
  table_ = std::move(table);
  products_ = std::move(products);
}

std::unique_ptr<Tuner::TunedProduct> Tuner::MakeProduct(const std::string& key,
                                                        const ProductKind& kind,
                                                        const std::string& value) const {
  if (value == kByShape) return nullptr;
  if (const auto algorithm = ParseAlgorithm(value)) {
    auto made = std::make_unique<TunedProduct>(TunedProduct{LtProduct(card_, kind), *algorithm});
    if (made->product.Takes(*algorithm)) return made;
  }
  throw Error(ExitCode::kData,
              "the choice of algorithms (worker.autotune) says \"{}\" for \"{}\", which cublasLt "
              "does not do here: set worker.autotune=false, or begin another run",
              value, key);
}

const std::string* Tuner::Find(const std::string& key) const {
  const auto found = table_.chosen.find(key);
  return found == table_.chosen.end() ? nullptr : &found->second;
}

float Tuner::Time(const std::function<void()>& run) const {
  const EventHandle begin = MakeTimer(), end = MakeTimer();
  const cudaStream_t stream = card_.stream(Queue::kCompute);
  Check(cudaEventRecord(begin.get(), stream), "record an event");
  run();
  Check(cudaEventRecord(end.get(), stream), "record an event");
  if (!AwaitEvent(end.get(), kPatience)) {
    throw Error(ExitCode::kFailure, "the card of this worker did not end a run of {:.0f} s",
                kPatience);
  }
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "time its work");
  return milliseconds;
}

void Tuner::Choose(const std::string& key, const std::vector<Candidate>& candidates) {
  float best = std::numeric_limits<float>::infinity();
  std::string chosen, why;
  for (const Candidate& candidate : candidates) {
    try {
      (void)Time(candidate.run);  // loads kernels, and chooses what is inside of it
      float least = Time(candidate.run);
      for (int i = 1; i < kRuns && least < 2 * best; ++i) {
        least = std::min(least, Time(candidate.run));
      }
      ++timed_;
      if (least >= best) continue;
      best = least;
      chosen = candidate.name;
    } catch (const Error& error) {
      why = error.what();
    }
  }
  if (chosen.empty()) throw Error(ExitCode::kFailure, "{}", why);
  table_.chosen[key] = chosen;
}

void Tuner::ChooseProduct(const ProductKind& kind, const ProductAddresses& at,
                          const std::function<void()>& by_shape) {
  const LtProduct product(card_, kind);
  std::vector<Candidate> candidates{{kByShape, by_shape}};
  for (const cublasLtMatmulAlgo_t& algorithm : product.Algorithms(kMostAlgorithms)) {
    candidates.push_back(
        {TextOf(algorithm), [&product, &at, algorithm] { product.Run(at, algorithm); }});
  }
  const std::string key = cuda::TextOf(kind);
  Choose(key, candidates);
  products_[kind] = MakeProduct(key, kind, table_.chosen[key]);
}

}  // namespace muster::cuda
