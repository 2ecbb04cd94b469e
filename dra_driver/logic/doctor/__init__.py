"""What the doctor makes of what it finds: findings, their texts and remedies."""
