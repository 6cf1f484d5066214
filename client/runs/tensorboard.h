/* TensorBoard event files: the scalars, texts and hyperparameters of one training.
 *
 * An event file is a sequence of TFRecords: length, CRC-32C of the length, data, CRC-32C of the
 * data. The data of a record is a protobuf message `tensorflow.Event`. The messages are small and
 * fixed, so tensorboard.c writes their bytes directly. Formats: TensorFlow's
 * core/lib/io/record_writer.h and core/util/event.proto, TensorBoard's
 * plugins/hparams/plugin_data.proto.
 *
 * TensorBoard reads the newest file of a folder and expects one writer in each folder. A run folder
 * has one writer, which creates a new file for each attempt.
 *
 * A write error never stops a training: the writer counts lost events and continues. */
#ifndef GP_RUNS_TENSORBOARD_H
#define GP_RUNS_TENSORBOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    TENSORBOARD_TAG_MAX = 200,       /* bytes */
    TENSORBOARD_TEXT_MAX = 64 << 10, /* bytes; longer texts and groups are cut */
    TENSORBOARD_HPARAMS_MAX = 256,
};

typedef struct tensorboard tensorboard; /* one event file */

/* Type of a hyperparameter. */
typedef enum tensorboard_type { TENSORBOARD_NUMBER, TENSORBOARD_BOOL, TENSORBOARD_TEXT } tensorboard_type;

/* A hyperparameter. `text` is borrowed, and is used only for TENSORBOARD_TEXT. */
typedef struct tensorboard_hparam {
    const char *name;
    tensorboard_type type;
    double number; /* also 0 or 1 of TENSORBOARD_BOOL */
    const char *text;
} tensorboard_hparam;

/* How a training ended; the values are those of tensorboard.hparams.Status. */
typedef enum tensorboard_end {
    TENSORBOARD_SUCCEEDED = 1,
    TENSORBOARD_FAILED = 2,
} tensorboard_end;

/* Create a new event file in the folder, events.out.tfevents.SECONDS.HOST.PID.N, and write the
 * first record. GP_EIO: the file cannot be created. Free with tensorboard_close(). */
gp_status tensorboard_open(tensorboard **out, const char *folder, gp_error *err);

/* Mark that the training continues at `step`: TensorBoard drops values of earlier files in the
 * folder from this step on. */
void tensorboard_resume(tensorboard *board, int64_t step, double wall_s);

/* Add a value to the curve `tag`. Values that are not finite are kept, because TensorBoard marks
 * them.
 *   wall_s  Unix time of the value, seconds */
void tensorboard_scalar(tensorboard *board, const char *tag, int64_t step, double wall_s, double value);

/* Add a text, which TensorBoard shows as Markdown. */
void tensorboard_text(tensorboard *board, const char *tag, int64_t step, double wall_s, const char *text);

/* Record the hyperparameters of the training. The columns of TensorBoard's table are `hparams` and
 * the last values of the curves `metrics`. Call this function once. At most TENSORBOARD_HPARAMS_MAX
 * of each are written. TensorBoard's table is empty if a curve in `metrics` has
 * steps above INT32_MAX.
 *   group  trainings with the same group are repetitions of one configuration */
void tensorboard_hparams(tensorboard *board, const char *group, double wall_s,
                         const tensorboard_hparam *hparams, uint32_t hparam_count, const char *const *metrics,
                         uint32_t metric_count);

/* Record the end of the training. */
void tensorboard_end_session(tensorboard *board, double wall_s, tensorboard_end end);

/* Write buffered events to the file. */
void tensorboard_flush(tensorboard *board);

/* Flush and close the file. Return the number of events that could not be written; if not 0, set
 * *problem to the last errno. Accepts NULL: 0. */
uint64_t tensorboard_close(tensorboard *board, int *problem);

#endif
