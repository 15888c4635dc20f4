/* Trains your own model with Muster: the C interface of libmuster_client.so.
 *
 * `muster launch [CONFIG] -- COMMAND` starts a server and several processes that run COMMAND. Each
 * process describes its variables, joins, and computes the gradients of slices of every batch. The
 * server adds them in a fixed order and updates the weights, so the result has the same bits on any
 * number of processes, even if some are killed. docs/OWN_GRADIENTS.md has an example.
 *
 *     muster_job *job = muster_create();
 *     int w = muster_add_variable(job, "w", shape, 2, NULL);
 *     fill(muster_weights(job, w));                    // initial values; those of rank 0 are used
 *     muster_join(job, training_samples, 0, test_samples);
 *     muster_work work;
 *     while (muster_next(job, -1, &work) == MUSTER_OK && work.kind != MUSTER_END) {
 *       if (work.kind == MUSTER_STEP_END) continue;
 *       double loss = forward(muster_weights(job, w), work.samples, work.count);
 *       muster_report(job, loss);
 *       if (work.kind == MUSTER_SLICE) backward(muster_gradient(job, w), 1.0 / work.batch);
 *       muster_done(job);
 *     }
 *     muster_destroy(job);
 *
 * Neither the transport nor the number of servers is visible here. A helper process,
 * `muster-worker`, communicates with the server; it ends with this process.
 *
 * Threads: one thread at a time may use a job. Different jobs are independent.
 *
 * Errors: a function that returns int returns MUSTER_OK or another muster_code, and muster_error
 * says what happened. After an error other than MUSTER_USAGE the job is over: call muster_destroy.
 *
 * Memory: all pointers belong to the job.
 */
#ifndef MUSTER_H
#define MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct muster_job muster_job;

/* The positive codes are those of all Muster programs. Exit with the code that you got. */
typedef enum muster_code {
  MUSTER_OK = 0,
  MUSTER_FAILURE = 1,
  MUSTER_USAGE = 2,       /* a wrong call or config; nothing has changed */
  MUSTER_PEER_FAILED = 7, /* the server or another process of the job has failed */
  MUSTER_REFUSED = 8,     /* this process does not fit the job: other variables or samples */
  MUSTER_AGAIN = -1       /* the time is up; call muster_next again */
} muster_code;

typedef enum muster_kind {
  MUSTER_SLICE,            /* compute the loss and the gradient of these samples */
  MUSTER_STEP_END,         /* the step is complete; the weights are those of the next step */
  MUSTER_TEST_BLOCK,       /* compute only the loss, of samples of the test set */
  MUSTER_VALIDATION_BLOCK, /* the same for the validation set */
  MUSTER_END,              /* the run is complete */
  MUSTER_UPDATE, /* only with optimizer PROGRAM: change the weights (muster_set_optimizer) */
  MUSTER_SAVE    /* the same: call muster_save */
} muster_kind;

typedef struct muster_work {
  muster_kind kind;
  int64_t step;           /* from 0; for a block and at the end, the number of completed steps */
  int64_t epoch;          /* from 0 */
  int64_t index;          /* of the slice in its step, or of the block in its set */
  int64_t count;          /* number of samples */
  const int64_t* samples; /* their indices in the set; valid until the next muster_next */
  int64_t batch;          /* samples of the whole step, of all processes */
  uint64_t seed;          /* for random numbers: the same in every process that gets this work */
  double loss_scale;      /* of a slice: a factor of the gradient (muster_set_loss_scaling), or 1 */
} muster_work;

/* Settings of a variable. Zero-initialise it and set what differs. */
typedef struct muster_variable_options {
  int has_weight_decay; /* otherwise the config's optimizer.weight_decay */
  float weight_decay;
  int has_learning_rate_multiplier; /* otherwise 1 */
  float learning_rate_multiplier;   /* 0: never changed */
  /* Not trained, like the running statistics of a batch norm. Instead of a gradient, write the new
   * values, multiplied by work.count / work.batch. The next step's values are the sum. */
  int is_averaged;
} muster_variable_options;

/* A job that has not joined yet. NULL if memory is exhausted. */
muster_job* muster_create(void);

/* Ends this process's part in the job and frees it. Before MUSTER_END, the other processes take
 * over its slices. NULL is allowed. */
void muster_destroy(muster_job* job);

/* What the last failed call on this job reported, or "". Valid until the next call. */
const char* muster_error(const muster_job* job);

/* Adds a float variable and returns its number, from 0, or -1. All processes must add the same
 * variables in the same order: best in the order of the forward pass, because gradients are sent
 * from the last to the first. `shape` has `dimensions` positive numbers; a scalar has none. `name`
 * is unique; it is the tensor's name in model.safetensors. `options` may be NULL. Not allowed after
 * the first muster_weights, muster_gradient or muster_join. */
int muster_add_variable(muster_job* job, const char* name, const int64_t* shape, int dimensions,
                        const muster_variable_options* options);

/* Makes this program set the optimizer and the learning rate of every step, instead of the config,
 * which then has no learning_rate. `optimizer` is an Optimizer of the config in its text format,
 * for example "type: ADAM beta1: 0.9"; it must be the same in all processes. Only before
 * muster_join.
 *
 * "type: PROGRAM": this program has an optimizer of its own. The server then starts one more copy
 * of the program on its host. That one gets no slices, but a MUSTER_UPDATE at the end of each step:
 * muster_gradient has the mean gradient of the batch, and the program changes muster_weights and
 * calls muster_done. At each checkpoint it gets a MUSTER_SAVE. Variables that are averaged are not
 * its concern. Weight decays and learning rate multipliers of variables have no effect. The
 * learning rate is only shown, and only that process may change it. SIGINT, SIGTERM and
 * SIGHUP do not end it, because they may reach all processes of a job that is stopped; processes
 * that it starts have the usual dispositions. */
int muster_set_optimizer(muster_job* job, const char* optimizer, double learning_rate);

/* The learning rate of the current step and the following ones, after muster_set_optimizer. It must
 * be a function of the step. Call it before muster_report, or before muster_done of an update. */
int muster_set_learning_rate(muster_job* job, double learning_rate);

#define MUSTER_OPEN 1000000

/* What the config may leave open: the samples of a batch, and the passes over the training set; 0:
 * the config says it. Where both say it, the config counts. The same in all processes. Only before
 * muster_join. With MUSTER_OPEN passes the program ends the run: it tells "stop", and, so that the
 * terminal can show it, "length:NAME" with the number of steps that it expects (muster_tell). */
int muster_set_run(muster_job* job, int64_t batch, int64_t epochs);

/* Whether the last batch of each epoch is left out if it is smaller (run.drop_last of the config).
 * Not called: the config says it. Where both say it, the config counts. The same in all processes.
 * Only before muster_join. */
int muster_set_drop_last(muster_job* job, int drop_last);

/* Whether each epoch visits the samples in the order of their indices. Not called, or 0: in a
 * random order, another one in each epoch. The same in all processes, and when the job is resumed.
 * Only before muster_join. */
int muster_set_in_order(muster_job* job, int in_order);

/* Makes this program multiply the gradient by work.loss_scale: that of the loss before backward, so
 * that small gradients do not become 0 in 16-bit floats, and what is written for averaged
 * variables. The reported loss is not multiplied. The server divides by it. It is a power of two; a
 * step whose gradient is not finite changes nothing and halves it, and 2,000 other steps in a row
 * double it. `on` 1: as worker { precision: FP16 } of the config. 0: only if the config says that.
 * A program that does not call it is refused with such a config. The same in all processes. Only
 * before muster_join. */
int muster_set_loss_scaling(muster_job* job, int on);

/* Says what the bits of this program's results depend on besides its own code, for example "NVIDIA
 * H100 (sm_90), torch 2.15.0, cuDNN 9.19, TF32 off" or "CPU, torch 2.15.0": first the device, CPU
 * or a GPU, then the libraries, in at most 1,024 bytes. A process with another text than the others
 * is refused; a resumed run may have another, with a warning. Not called, or "": nothing is
 * compared. Only before muster_join. */
int muster_set_arithmetic(muster_job* job, const char* text);

/* A number that must be the same in all processes of a job, also when it is resumed: for example a
 * hash of the data, or of what the program computes with besides its variables. Only before
 * muster_join. */
void muster_set_fingerprint(muster_job* job, uint64_t fingerprint);

/* The current values of a variable, row by row, 64-byte aligned; NULL if it does not exist. Write
 * the initial values here before muster_join; only read it afterwards. Muster changes the values
 * only within muster_next. The address never changes. */
float* muster_weights(muster_job* job, int variable);

/* Where to write the gradient of the current slice: the sum over its samples of the gradients of
 * their losses, divided by muster_work.batch. All elements must be written for every slice. Same
 * layout as muster_weights. */
float* muster_gradient(muster_job* job, int variable);

/* Joins the job that the environment names (MUSTER_ENDPOINT, set by `muster launch`), and waits
 * until all processes have joined, at most deadlines.start_s. The numbers of samples must be the
 * same in all processes; 0: there is no such set. */
int muster_join(muster_job* job, int64_t training_samples, int64_t validation_samples,
                int64_t test_samples);

/* Facts about the run, after muster_join. */
int64_t muster_rank(const muster_job* job);       /* -1: the process that updates the weights */
int64_t muster_first_step(const muster_job* job); /* 0, or where a resumed run continues */
int64_t muster_total_steps(const muster_job* job);
int64_t muster_steps_per_epoch(const muster_job* job);
int64_t muster_slices(const muster_job* job); /* of each step */

/* Waits for the next work, at most `seconds` (negative: without limit; the server's deadlines end
 * the wait). A step may have more or fewer slices than usual, because slices of a lost process go
 * to the others; blocks of its evaluation may come between slices. A process that was too slow may
 * miss the end of a step. */
int muster_next(muster_job* job, double seconds, muster_work* work);

/* Describes the work of any step and slice of this run without waiting for it, so that its samples
 * can be loaded ahead of time. Call it between muster_next and muster_done. work.samples is valid
 * until the next call of muster_plan. count is 0 if the slice has no samples. loss_scale is 1,
 * because that of a later step is not known yet. */
int muster_plan(muster_job* job, int64_t step, int64_t slice, muster_work* work);

/* Reports the sum of the losses of the current samples. Once for each slice or block, before the
 * first muster_push. */
int muster_report(muster_job* job, double loss);

/* What the current slice counts in the step's mean: for example the number of its targets, where
 * slices have different numbers of them. 0 or more. The loss that is reported and the gradient are
 * then the mean over the targets times the weight, and the server divides the sum over the slices
 * by the sum of weights. If that is 0, so is the gradient. All slices of a step have a weight, or
 * none: then the sum of losses and the gradient divided by work.batch count. Call it before
 * muster_report. */
int muster_set_weight(muster_job* job, double weight);

/* Adds a named quantity of the current samples, such as the number of correct ones: its sum over
 * them. Like the loss, it is reported as the mean over samples, in the terminal, metrics.jsonl and
 * TensorBoard. Between muster_next and muster_report, at most 32 names for each slice or block. A
 * name has 1 to 64 characters of [A-Za-z0-9_./-]; it comes once in a slice or block and may be
 * missing in others, whose samples then do not count. Processes that compute the same slice must
 * report the same bits. Any value is allowed, even NaN. Of more than 32 different names of the
 * steps between two log lines, or of an evaluation, 32 are reported. Returns MUSTER_USAGE for a
 * wrong name or time; the work goes on. */
int muster_add_scalar(muster_job* job, const char* name, double sum);

/* Stores what the updates need besides the weights, such as momenta, in the checkpoint that is
 * being written. In work of kind MUSTER_SAVE, before muster_done; several calls append. */
int muster_save(muster_job* job, const void* state, size_t bytes);

/* What muster_save stored in the checkpoint that the run resumes from, and its size; NULL and 0 if
 * there is none. After muster_join. */
const void* muster_state(const muster_job* job, size_t* bytes);

/* Says that the gradient of this variable is complete, so that it is sent while the others are
 * computed. Optional: muster_done does it for all. */
int muster_push(muster_job* job, int variable);

/* Completes the current slice or block. */
int muster_done(muster_job* job);

/* What muster_ask returns. */
typedef enum muster_answer_kind {
  MUSTER_VALUE,
  MUSTER_COMPUTE, /* this process must compute the value and call muster_tell; the others wait */
  MUSTER_ABSENT,  /* the run is past this step, nobody has told the value, and nobody computes it */
  MUSTER_GIVE_STATE /* a checkpoint is due: call muster_save, muster_done, and repeat muster_ask */
} muster_answer_kind;

/* What a process may do while it asks; any of them added. */
#define MUSTER_MAY_COMPUTE 1
#define MUSTER_MAY_SAVE 2 /* the process that updates: answer MUSTER_GIVE_STATE */

typedef struct muster_answer {
  muster_answer_kind kind;
  const char* value; /* of MUSTER_VALUE; valid until the next muster_ask */
  size_t bytes;
} muster_answer;

/* Asks for a named value that is the same in all processes, such as an accuracy that one of them
 * has computed. The server keeps it, also in checkpoints. `key` has 1 to 256 bytes, and one value
 * for the whole run; `step` is the number of completed steps that the value belongs to. If nobody
 * has told it, one of the processes that may compute it gets MUSTER_COMPUTE. If that one is lost,
 * another one does; the limit is deadlines.once_s. The others wait, at most `seconds` (negative:
 * without limit). After MUSTER_AGAIN repeat the call; any other call but muster_fail is an error.
 * The process that updates may save meanwhile, when it has restored its state: otherwise a run that
 * ends before its next work loses the state since the checkpoint before. A program that resumes
 * such a checkpoint restores the state at this very question.
 *
 * The server itself tells "epoch:STEP", STEP being the number of completed steps at the end of each
 * epoch and of the run: the means of the epoch's steps, as JSON, {"loss": 0.25, "accuracy": 0.9}.
 * Values whose key begins with "now:" are only compared: checkpoints do not have them.
 *
 * Allowed from muster_join until muster_next returns MUSTER_END: in the middle of a slice, between
 * slices, and after the last MUSTER_STEP_END. After the last slice of a step it may be answered
 * only when the step is complete. */
int muster_ask(muster_job* job, const char* key, int64_t step, int may, double seconds,
               muster_answer* answer);

/* Tells a value of at most 65,536 bytes. If the server has another one for this key, the run fails.
 * Returns without waiting: ask again for what all processes get. Allowed like muster_ask.
 *
 * "stop" is special: it ends the run before it trains on the weights of `step`, which must be its
 * current step. The value is the reason. All processes must tell it before they report a loss of
 * that step. Slices after that no longer count; a process completes them with any values, and
 * evaluations with true ones, until MUSTER_END.
 *
 * "bits:NAME" says that the program's bits may differ in other runs, because of NAME, for example
 * an operator of a GPU whose additions have no fixed order. The value says more, in a few words.
 * The first one of each NAME becomes a warning, others are ignored. The run's summary lists the
 * names. */
int muster_tell(muster_job* job, const char* key, int64_t step, const void* value, size_t bytes);

/* Ends the whole job with this message, because this program cannot go on and another process would
 * fail in the same way. Returns MUSTER_OK when the server has the message. After that exit(0) ends
 * this process with code 1. */
int muster_fail(muster_job* job, const char* message);

/* Asks to leave. The process still completes its slices; then muster_next returns MUSTER_END. */
int muster_leave(muster_job* job);

/* After MUSTER_END: whether muster_weights holds the weights after the last step. It may not if
 * this process had no work in the last step; model.safetensors in the run directory always does. */
int muster_has_last_weights(const muster_job* job);

#ifdef __cplusplus
}
#endif

#endif
