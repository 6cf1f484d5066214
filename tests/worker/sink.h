/* sink.h: functions of a gp_train_sink that ignore steps and validations. */
#ifndef GP_TEST_SINK_H
#define GP_TEST_SINK_H

#include "worker/train/trainer.h"

static void ignore_record(void *context, const gp_train_record *record)
{
    (void)context;
    (void)record;
}

static void ignore_validation(void *context, const gp_train_validation *validation)
{
    (void)context;
    (void)validation;
}

#endif
