#include "worker/backend/cpu/cpu_backend.h"

#include <omp.h>
#include <xmmintrin.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>

#include "common/base/denormals.h"
#include "common/base/error.h"
#include "worker/backend/cpu/bf16.h"
#include "worker/backend/cpu/in_floats.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/onednn.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/weight_layouts.h"
#include "worker/backend/host_backend.h"

namespace muster {
namespace {

class CpuBackend : public HostBackend {
 public:
  CpuBackend(int threads, const CpuOptions& options) : threads_(threads), options_(options) {
    MUSTER_CHECK(threads >= 1);
    Enter();
  }

  void Enter() override {
    // Both settings are per thread, and each thread that starts parallel regions has its own team.
    if (entered_by_ == std::this_thread::get_id() && omp_get_max_threads() == threads_) return;
    omp_set_dynamic(0);
    omp_set_num_threads(threads_);
    FlushDenormals();
    std::atomic<int> team{0};
    cpu::InTeam(threads_, [&](int) {
      FlushDenormals();
      ++team;
    });
    if (team != threads_) {  // a barrier would wait for the others
      throw Error(ExitCode::kUsage,
                  "worker.threads: expected {} OpenMP threads, got {}: unset OMP_THREAD_LIMIT and "
                  "OMP_MAX_ACTIVE_LEVELS, or set worker.threads to {}",
                  threads_, team.load(), team.load());
    }
    entered_by_ = std::this_thread::get_id();
  }

  ElementType activation_type() const override {
    return options_.bf16 ? ElementType::kBFloat16 : ElementType::kFloat32;
  }
  ElementType logits_type() const override { return ElementType::kFloat32; }

  std::unique_ptr<WeightLayouts> MakeWeightLayouts() override {
    return std::make_unique<cpu::CpuWeightLayouts>();
  }

  std::unique_ptr<Op> MakeOp(const Layer& layer, const OpOptions& options) override {
    auto op = MakeAny<Op>(layer, options, options_.bf16 && !options.float_logits);
    const bool has_only_floats = dynamic_cast<cpu::TypedOp<float>*>(op.get()) != nullptr;
    if (options_.bf16 && has_only_floats) return cpu::InFloats(layer, options, std::move(op));
    return op;
  }

  std::unique_ptr<LossOp> MakeLoss(const Layer& layer, const OpOptions& options) override {
    auto loss = MakeAny<LossOp>(layer, options, false);
    return options_.bf16 ? cpu::LossInFloats(layer, options, std::move(loss)) : std::move(loss);
  }

  void AddGradients(void* to, const void* a, const void* b, const void* relu_output,
                    int64_t count) override {
    const auto add = [&]<typename T>(T* sum) {
      cpu::AddGradients(sum, static_cast<const T*>(a), static_cast<const T*>(b),
                        static_cast<const T*>(relu_output), count);
    };
    options_.bf16 ? add(static_cast<cpu::Bf16*>(to)) : add(static_cast<float*>(to));
  }

  void ToActivations(void* to, const float* from, int64_t count) override {
    MUSTER_CHECK(options_.bf16);
    cpu::ForElements(count, [=, to = static_cast<cpu::Bf16*>(to)](int64_t i) { to[i] = from[i]; });
  }

  void MirrorImages(void* to, const void* from, int64_t count, const Shape& shape) override {
    const auto pixel = shape.channels * static_cast<int64_t>(BytesOf(activation_type()));
    const int64_t width = shape.width, row = width * pixel;
    cpu::ParallelFor(count * shape.height, [=](int64_t r) {
      auto* const out = static_cast<std::byte*>(to) + r * row;
      const auto* const in = static_cast<const std::byte*>(from) + r * row;
      for (int64_t x = 0; x < width; ++x) {
        std::memcpy(out + x * pixel, in + (width - 1 - x) * pixel, static_cast<size_t>(pixel));
      }
    });
  }

  void AverageLogits(ElementType type, void* logits, const void* others, int64_t count) override {
    const auto average = [=]<typename T>(T* to) {
      const auto* const from = static_cast<const T*>(others);
      cpu::ForElements(count, [=](int64_t i) { to[i] = 0.5f * (to[i] + from[i]); });
    };
    type == ElementType::kBFloat16 ? average(static_cast<cpu::Bf16*>(logits))
                                   : average(static_cast<float*>(logits));
  }

  void RoundSlice(ElementType wire, float* values, size_t count) override {
    RoundTo(wire, {values, count});
  }

  void AddSlices(ElementType wire, const float* a, const float* b, float* to,
                 size_t count) override {
    AddRounded(wire, a, b, to, count);
  }

 private:
  // Calls the layer's Make (ops.h). Its result must be of type Wanted.
  template <typename Wanted>
  std::unique_ptr<Wanted> MakeAny(const Layer& layer, const OpOptions& options, bool bf16) {
    const cpu::OpRequest request{layer, options, dnn_, options_.winograd, bf16};
    const auto make = [&](const auto& spec) -> std::unique_ptr<Wanted> {
      if constexpr (std::is_same_v<decltype(cpu::Make(spec, request)), std::unique_ptr<Wanted>>) {
        return cpu::Make(spec, request);
      }
      MUSTER_CHECK(!"MakeOp is not for losses, MakeLoss only for losses, neither for flatten");
    };
    try {
      return std::visit(make, layer.spec);
    } catch (const dnnl::error& error) {
      throw Error(ExitCode::kFailure, "layer {} ({} {} -> {}, batch {}): oneDNN: {}", layer.name,
                  layer.kind, layer.input_shape.ToString(), layer.output_shape.ToString(),
                  options.batch, error.what());
    }
  }

  const int threads_;
  const CpuOptions options_;
  std::thread::id entered_by_;
  cpu::OneDnn dnn_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(int threads, const CpuOptions& options) {
  return std::make_unique<CpuBackend>(threads, options);
}

}  // namespace muster
