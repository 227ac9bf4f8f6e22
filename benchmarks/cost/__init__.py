"""What features, selection and training cost beside what others do."""
