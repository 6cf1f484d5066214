/* sources.h -- the functions of the kinds of data sources, as sources.def lists them. */
#ifndef GP_SOURCES_H
#define GP_SOURCES_H

#include "common/data/store/store.h"

/* Return whether a source, file or directory is of this kind. */
typedef bool gp_source_is_fn(const char *source);

/* Open it: the opener behind gp_store_open_with(). */
typedef gp_status gp_source_open_fn(gp_store **out, const char *source, gp_data_role role,
                                    const gp_store_options *options, gp_error *err);

#define GP_SOURCE(place, is, open)                                                                           \
    gp_source_is_fn is;                                                                                      \
    gp_source_open_fn open;
#define GP_SOURCE_NAMED(place, name, open) gp_source_open_fn open;
#include "common/data/source/sources.def"
#undef GP_SOURCE
#undef GP_SOURCE_NAMED

/* Return the rest of a source that is "WORD" or "WORD:rest"; NULL: it is neither. */
const char *gp_source_after_word(const char *source, const char *word);

/* Return whether these drawn digits are cached on disk: their number is well-formed, neither too small nor too large. */
bool gp_digits_are_cached(const char *source);

#endif
