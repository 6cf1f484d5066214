#include "worker/train/trainer_notes.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

void gp_train_notes_add(gp_train_notes *notes, bool warning, const char *format, ...)
{
    va_list arguments;

    assert(notes->count < GP_TRAIN_NOTES_MAX);
    va_start(arguments, format);
    vsnprintf(notes->text[notes->count], sizeof(notes->text[0]), format, arguments);
    va_end(arguments);
    notes->warning[notes->count] = warning;
    notes->count += notes->text[notes->count][0] != '\0';
}

void gp_train_notes_report(const gp_train_notes *notes, const gp_train_sink *sink)
{
    for (uint32_t i = 0; i < notes->count; i++)
        sink->note(sink->context, notes->text[i], notes->warning[i]);
}
