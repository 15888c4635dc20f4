/* Linear regression in plain C: fits y = 2 a - 3 b + 1 to 1,000 noisy points.
 *
 *     muster launch examples/c_linear/linear.txtpb --workers 4 -- build/release/bin/c_linear
 */
#include <math.h>
#include <muster.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRAINING = 1000, TEST = 100, INPUTS = 2 };

static float uniform(unsigned long i) { /* in [-1, 1), from the number of the point */
  i = (i + 1) * 0x9e3779b97f4a7c15ul;
  i = (i ^ i >> 30) * 0xbf58476d1ce4e5b9ul;
  i = (i ^ i >> 27) * 0x94d049bb133111ebul;
  return (float)((i ^ i >> 31) >> 40) / (float)(1 << 23) - 1.0f;
}

static void point(unsigned long i, float *x, float *y) {
  x[0] = uniform(3 * i);
  x[1] = uniform(3 * i + 1);
  *y = 2 * x[0] - 3 * x[1] + 1 + 0.1f * uniform(3 * i + 2);
}

static void check(muster_job *job, int code) {
  if (code == MUSTER_OK) return;
  fprintf(stderr, "error: %s\n", muster_error(job));
  muster_destroy(job);
  exit(code);
}

int main(void) {
  muster_job *job = muster_create();
  const int64_t shape[] = {INPUTS};
  const int weights = muster_add_variable(job, "weights", shape, 1, NULL);
  const int bias = muster_add_variable(job, "bias", NULL, 0, NULL);
  float *w = muster_weights(job, weights), *b = muster_weights(job, bias);
  float *dw = muster_gradient(job, weights), *db = muster_gradient(job, bias);
  if (b == NULL || db == NULL) check(job, MUSTER_FAILURE);
  w[0] = w[1] = *b = 0; /* the initial values */
  check(job, muster_join(job, TRAINING, 0, TEST));

  for (;;) {
    muster_work work;
    check(job, muster_next(job, -1, &work));
    if (work.kind == MUSTER_END) break;
    if (work.kind == MUSTER_STEP_END) continue;
    const unsigned long first = work.kind == MUSTER_SLICE ? 0 : TRAINING;
    double loss = 0;
    dw[0] = dw[1] = *db = 0;
    for (int64_t i = 0; i < work.count; ++i) {
      float x[INPUTS], y;
      point(first + (unsigned long)work.samples[i], x, &y);
      const float error = w[0] * x[0] + w[1] * x[1] + *b - y;
      loss += 0.5 * error * error;
      if (work.kind != MUSTER_SLICE) continue;
      dw[0] += error * x[0] / (float)work.batch;
      dw[1] += error * x[1] / (float)work.batch;
      *db += error / (float)work.batch;
    }
    check(job, muster_report(job, loss));
    check(job, muster_done(job));
  }
  if (muster_rank(job) == 0 && muster_has_last_weights(job))
    printf("y = %.3f a + %.3f b + %.3f\n", w[0], w[1], *b);
  muster_destroy(job);
  return 0;
}
