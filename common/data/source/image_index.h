/* image_index.h -- image lists cached on disk, so that a folder of a million files is listed only once.
 *
 * A cached list is valid as long as every directory that was read still has its modification time and inode. A list is saved
 * only if all directories were older than two seconds: a file added within the same tick of the clock would go unnoticed.
 * A damaged index, or one of another version, is ignored. Paths in it are relative to the source, so a list serves every
 * process, whichever way it names the source. */
#ifndef GP_IMAGE_INDEX_H
#define GP_IMAGE_INDEX_H

#include "common/data/source/image_list.h"

enum { GP_IMAGE_INDEX_COUNT_MIN = 20000 }; /* shorter lists are made faster than a file is written */

/* Load the list of a source and role; its paths begin with `directory`. False: no valid list is cached, and the list is empty. */
bool gp_image_index_load(gp_image_list *list, const char *directory, gp_data_role role);

/* Cache a list made with the same `directory`, if it is long enough. Nothing depends on success, so no error is returned. */
void gp_image_index_save(const gp_image_list *list, const char *directory, gp_data_role role);

#endif
